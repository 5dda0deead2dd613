"""Storms: federations drawn from a seed, a timetable of faults, and checkers that know everything."""
