"""The IPsec policy of tunnels."""

from __future__ import annotations

from msgspec import Struct


class Ipsec(Struct, frozen=True):
    """The policy of both ends of every tunnel, in AWS's and strongSwan's terms.

    AWS Site-to-Site VPN User Guide, "Tunnel options"; swanctl.conf(5). Times in seconds.
    """

    encryption: tuple[str, ...]
    """AWS's names, for both phases: ``AES256-GCM-16``."""
    integrity: tuple[str, ...]
    """AWS's names; the pseudo-random functions, as AEAD ciphers need no integrity algorithm."""
    dh_groups: tuple[int, ...]
    """Diffie-Hellman groups by IANA number."""
    phase1_lifetime: int
    phase2_lifetime: int
    rekey_margin: int
    rekey_fuzz_percent: int
    dpd_timeout: int
    """How long AWS waits for a silent peer."""
    replay_window: int
    """In packets."""
    ike_proposals: tuple[str, ...]
    """swanctl's ``proposals``, best first."""
    esp_proposals: tuple[str, ...]
    """swanctl's ``esp_proposals``, best first."""
    ike_rekey: int
    """When our end rekeys an IKE SA: before AWS does."""
    ike_rand: int
    """The maximum random time by which it is earlier, so that tunnels do not all rekey at once."""
    esp_rekey: int
    esp_rand: int
    esp_life: int
    """The lifetime of an ESP SA that is not rekeyed."""
    dpd_delay: int
    """How long our end waits before it probes a silent peer."""
    hold: int
    """BGP's hold time: how long a silent session, and its routes, are kept. The smaller value of both ends
    is used (RFC 4271, 4.2)."""
    keepalive: int
