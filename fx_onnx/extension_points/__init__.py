"""The tables by which one part of the package finds another: rooms, plug-ins, translations."""
