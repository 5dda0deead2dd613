"""Storms: random federations with a timetable of faults, and checks of all promises with full knowledge."""
