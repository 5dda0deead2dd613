"""Decodes numbers from planes, compiled. It is a folder of its own, so that a pure checkout never finds another's
build.
"""
