"""What the ends of tunnels agree on: one policy for all of them."""

from __future__ import annotations

from infra.model.ipsec import Ipsec

_CURVES = {19: ("prfsha256", "ecp256"), 20: ("prfsha384", "ecp384"), 21: ("prfsha512", "ecp521")}
"""Diffie-Hellman groups, by number → swanctl's pseudo-random function of the same strength, and the group."""

_BEST_FIRST = (20, 21, 19)


def resolve_ipsec(hold: int) -> Ipsec:
    """The policy, with BGP's hold time in seconds.

    AES-256-GCM alone: it authenticates by itself, is the quickest on today's processors, and one cipher
    makes one MTU. Groups 19 to 21 are what both AWS and NIST SP 800-77r1 take, CNSA's group 20 first.
    Our end renews first, at two thirds of phase 2 and half of phase 1: AWS begins 540 to 1,080 s before the
    end (margin and fuzz), and two ends that renew at once make one SA too many.
    """
    return Ipsec(
        encryption=("AES256-GCM-16",),
        integrity=("SHA2-256", "SHA2-384", "SHA2-512"),
        dh_groups=tuple(sorted(_CURVES)),
        phase1_lifetime=28800,
        phase2_lifetime=3600,
        rekey_margin=540,
        rekey_fuzz_percent=100,
        dpd_timeout=30,
        replay_window=1024,
        ike_proposals=tuple(f"aes256gcm16-{'-'.join(_CURVES[group])}" for group in _BEST_FIRST),
        esp_proposals=tuple(f"aes256gcm16-{_CURVES[group][1]}" for group in _BEST_FIRST),
        ike_rekey=14400,
        ike_rand=1440,
        esp_rekey=2400,
        esp_rand=240,
        esp_life=3600,
        dpd_delay=10,
        hold=hold,
        keepalive=max(1, hold // 3),
    )
