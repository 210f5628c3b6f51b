"""Benchmarks: libsumtree against what people use otherwise, side by side in one process.

Every figure is the median over rounds; in a round each contestant does the same work on the same
fresh random input, by turns, and a ratio is the median of the ratios within rounds. After each
table the contestants' trees must have the same bits as ours.

racing.py    rounds                         libraries.py  C contestants, called from one C loop
trees.py     the tables of the tree         peers.py      other packages, where installed
crossing.py  what Python adds to a call     tuning.py     which backend pays where
report.py    tables, JSON                   picture.py    PNG
suites.py    which tables are one command   intake/       replay servers, in processes
"""
