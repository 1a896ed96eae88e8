"""Tasks outside the package, named in configs as ``examples.jugs:FAMILY``."""
