"""Intake: transitions per second into a replay server, {ZeroMQ, MPI} x {pickle, raw records}.

Four servers over the same buffer, each with its own processes for actors and a learner:

mpi_raw.py     `libsumtree.replay` as users get it      zmq_raw.py     one ROUTER loop, raw records
mpi_pickle.py  matched probe and pickle                 zmq_pickle.py  the published Ape-X server

records.py  what is sent, and what a server must hold   clients.py  what actors and learners do
board.py    the memory in which processes see phases    process.py  what each process runs
launch.py   starts and ends the processes of a run      rounds.py   runs, by turns
tables.py   what the rounds found, as tables            drawing.py  and as a picture
floor.py    what one core copies
"""
