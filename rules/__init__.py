"""The built-in rule packs: TOML files, and the measures they need."""
