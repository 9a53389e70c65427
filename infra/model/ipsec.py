"""What the ends of IPsec tunnels agree on."""

from __future__ import annotations

from msgspec import Struct


class Ipsec(Struct, frozen=True):
    """What both ends of every tunnel agree on, in the words of AWS and in those of strongSwan.

    AWS Site-to-Site VPN User Guide, "Tunnel options"; swanctl.conf(5). Times in seconds.
    """

    encryption: tuple[str, ...]
    """AWS's names, for both phases: ``AES256-GCM-16``."""
    integrity: tuple[str, ...]
    """AWS's names; the pseudo-random functions, where the cipher authenticates by itself."""
    dh_groups: tuple[int, ...]
    """Diffie-Hellman groups by IANA number."""
    phase1_lifetime: int
    phase2_lifetime: int
    rekey_margin: int
    rekey_fuzz_percent: int
    dpd_timeout: int
    """After how long AWS takes a silent peer for dead."""
    replay_window: int
    """Packets."""
    ike_proposals: tuple[str, ...]
    """swanctl's ``proposals``, best first."""
    esp_proposals: tuple[str, ...]
    """swanctl's ``esp_proposals``, best first."""
    ike_rekey: int
    """When our end renews an IKE SA: before AWS's would."""
    ike_rand: int
    """Up to how much earlier, by chance, so that not all tunnels renew at once."""
    esp_rekey: int
    esp_rand: int
    esp_life: int
    """When an ESP SA ends that nobody renewed."""
    dpd_delay: int
    """After how long a silence our end asks whether the peer lives."""
    hold: int
    """BGP's hold time: after how long a silence a session, and the routes learnt on it, are gone. The smaller
    of both ends' wins (RFC 4271, 4.2)."""
    keepalive: int
