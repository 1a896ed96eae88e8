"""One thin module per DVC stage: read the settings, call one function, write the outputs."""
