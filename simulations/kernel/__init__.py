"""The operating system of the processes of a simulated world: time, event loops, TCP, disks, and a fence
around the real ones.
"""
