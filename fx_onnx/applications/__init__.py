"""Exports what ``save_pretrained`` wrote to the folder that an application loads: tasks, parts and layouts."""
