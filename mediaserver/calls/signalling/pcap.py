"""Writes SIP messages as a pcap file, which Wireshark, tshark, tcpdump and sngrep open.

Each message is one UDP datagram in an IP packet without a link layer, whatever transport carried it: what was
encrypted can be read, and nothing must be reassembled."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

CONTENT_TYPE = "application/vnd.tcpdump.pcap"

_LINKTYPE_RAW = 101
_MAX_PAYLOAD = 65_000
_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535 + 40, _LINKTYPE_RAW)
_UDP = 17
_HOPS = 64

IpAddress = IPv4Address | IPv6Address


def pcap(messages: Iterable[dict[str, Any]]) -> bytes:
    """Returns a file of `messages` (the form that `mediaserver.calls.signalling.traces` stores) in order of
    time."""
    pieces = [_HEADER]
    for message in sorted(messages, key=lambda each: each["at_us"]):
        ends = message["local"], message["remote"]
        source, target = ends if message["sent"] else ends[::-1]
        packet = _packet(source, target, message["text"].encode()[:_MAX_PAYLOAD])
        seconds, micros = divmod(message["at_us"], 1_000_000)
        pieces += [struct.pack("<IIII", seconds, micros, len(packet), len(packet)), packet]
    return b"".join(pieces)


def _packet(source: tuple[str, int], target: tuple[str, int], payload: bytes) -> bytes:
    here, there = _address(source[0]), _address(target[0])
    if here.version != there.version:
        here, there = _mapped(here), _mapped(there)
    length = 8 + len(payload)
    pseudo = here.packed + there.packed + struct.pack("!HH", _UDP, length)
    head = struct.pack("!HHH", source[1], target[1], length)
    udp = head + struct.pack("!H", _checksum(pseudo + head + payload) or 0xFFFF) + payload
    if here.version == 6:
        return struct.pack("!IHBB", 6 << 28, length, _UDP, _HOPS) + here.packed + there.packed + udp
    first = struct.pack("!BBHHHBB", 0x45, 0, 20 + length, 0, 0, _HOPS, _UDP)
    checksum = struct.pack("!H", _checksum(first + here.packed + there.packed))
    return first + checksum + here.packed + there.packed + udp


def _address(host: str) -> IpAddress:
    """The address of a host; 0.0.0.0 for a name that was never looked up."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return IPv4Address(0)


def _mapped(address: IpAddress) -> IPv6Address:
    return address if isinstance(address, IPv6Address) else IPv6Address(f"::ffff:{address}")


def _checksum(data: bytes) -> int:
    """RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
