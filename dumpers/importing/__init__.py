"""Putting what a user has into the places of ``precision_data``: recognise, plan, place."""
