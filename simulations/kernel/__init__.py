"""What an operating system gives to the processes of a simulated world: time, event loops, TCP, disks, and a
fence around the real ones.
"""
