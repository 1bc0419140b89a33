"""The full-screen workbench. Shows what commands answer; holds no rule of its own and touches no file and no array."""
