"""From a delivery to rows: programs only, no model judges."""
