"""All that turns a model into scores without being the model: frozen, versioned and signed."""
