"""What answers: servers, embedded models and references. A runtime only translates."""
