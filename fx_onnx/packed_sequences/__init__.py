"""An RNN, LSTM or GRU of packed sequences, whose number of steps depends on data.

It is a room: without this folder, a forward that packs sequences is refused.
"""
