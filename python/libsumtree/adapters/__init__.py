"""Prioritized replay in learners of other packages: each module needs the package it is for.

``stable_baselines3`` has a replay buffer and a DQN, ``torchrl`` a sampler. They are imported by
name: ``from libsumtree.adapters.stable_baselines3 import PrioritizedDQN``.
"""
