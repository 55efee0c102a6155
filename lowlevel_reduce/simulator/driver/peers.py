"""Peers: which device can access the memory of which other, and which contexts have access enabled."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

from typing import Any

from lowlevel_reduce.simulator.driver.state import State, refuse

__all__ = ["Peers"]

# Any two devices are connected like two H200s of one host.
_FACTS = {"PERFORMANCE_RANK": 0, "ACCESS_SUPPORTED": 1, "NATIVE_ATOMIC_SUPPORTED": 1}


class Peers:
    """Functions of devices that can access each other's memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuDeviceCanAccessPeer(self, device: Any, peer: Any) -> int:
        return int(self._state.check_device(device) != self._state.check_device(peer))

    def cuDeviceGetP2PAttribute(self, attribute: Any, device: Any, peer: Any) -> int:
        if not self.cuDeviceCanAccessPeer(device, peer):
            refuse("INVALID_DEVICE")
        value = _FACTS.get(attribute.name.removeprefix("CU_DEVICE_P2P_ATTRIBUTE_"))
        return refuse("NOT_SUPPORTED") if value is None else value

    def cuCtxEnablePeerAccess(self, context: Any, flags: int) -> None:
        pair = self._pair(context)
        if flags:
            refuse("INVALID_VALUE")
        if pair in self._state.peers:
            refuse("PEER_ACCESS_ALREADY_ENABLED")
        self._state.peers.add(pair)

    def cuCtxDisablePeerAccess(self, context: Any) -> None:
        pair = self._pair(context)
        if pair not in self._state.peers:
            refuse("PEER_ACCESS_NOT_ENABLED")
        self._state.peers.remove(pair)

    def _pair(self, context: Any) -> tuple[int, int]:
        ours, theirs = self._state.current(), self._state.context(context)
        if ours.ordinal == theirs.ordinal:
            refuse("INVALID_DEVICE")
        return ours.handle, theirs.handle
