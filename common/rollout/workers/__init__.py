"""Collecting in other processes, on this machine or on a cluster.

The environments are divided into shards, which the settings fix and the workers do not. Collecting a shard is a pure
function of the policy, the exploration noise and a snapshot of the shard, so any worker may compute it, and again if
the first one is lost.
"""
