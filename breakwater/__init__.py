"""The installed command: start, run, env, status, doctor. `cli.main` is its door.

In an installed package the addon and its rooms lie in the folder `_app`; in a clone they lie beside this package.
"""
