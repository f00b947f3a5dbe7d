"""Python branches on data become If: one capture for each path through the forward, and a merge of their models.

It is a room: without this folder, such a branch is refused.
"""
