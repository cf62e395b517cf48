"""Connects two network namespaces by this process, which passes packets on: device name, two namespaces. Reads orders: "cut" (nothing passes, and neither
side hears of it), "join", "delay SECONDS"."""

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

NEW_NETWORK, SET_INTERFACE, TUN_WITHOUT_HEADER = 0x40000000, 0x400454CA, 0x1001
MOST = 65536  # bytes of a packet


def interface(device, namespace):
    """Creates an interface in a namespace. Returns the file of its packets."""
    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(file, NEW_NETWORK):
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    os.close(file)
    tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tunnel, SET_INTERFACE, struct.pack("16sH", device.encode(), TUN_WITHOUT_HEADER))
    return tunnel


class Relay:
    def __init__(self, device, namespaces):
        self.tunnels = [interface(device, namespace) for namespace in namespaces]
        self.is_cut, self.delay = False, 0.0
        self.waiting = deque()  # (time to pass, tunnel, packet)

    def obey(self, order):
        name, *value = order.split()
        if name == "delay":
            self.delay = float(value[0])
        else:
            self.is_cut = name == "cut"
        if self.is_cut:
            self.waiting.clear()

    def receive(self, side):
        packet = os.read(self.tunnels[side], MOST)
        if not self.is_cut:
            self.waiting.append((time.monotonic() + self.delay, self.tunnels[1 - side], packet))

    def send(self):
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            _, tunnel, packet = self.waiting.popleft()
            try:
                os.write(tunnel, packet)
            except OSError:
                pass  # as a full queue of a network: TCP sends it again

    def run(self):
        orders = os.fdopen(0, "rb", buffering=0)
        while True:
            left = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else None
            for ready in select.select([orders, *self.tunnels], [], [], left)[0]:
                if ready is not orders:
                    self.receive(self.tunnels.index(ready))
                    continue
                line = orders.readline().decode()
                if not line:
                    return
                self.obey(line)
                print("done", flush=True)
            self.send()


relay = Relay(sys.argv[1], sys.argv[2:])
print("ready", flush=True)
relay.run()
