"""The application: documented names, commands, shell."""
