"""Offers in the manner of what is met on trunks: what each sends, down to its order and oddities."""

from __future__ import annotations

from collections.abc import Mapping


def _sdp(text: str, end: str = "\r\n") -> bytes:
    return "".join(line.strip() + end for line in text.strip().splitlines()).encode()


OFFERS: Mapping[str, bytes] = {
    "asterisk": _sdp("""
        v=0
        o=root 1245703183 1245703183 IN IP4 192.0.2.10
        s=Asterisk PBX 18.10.0
        c=IN IP4 192.0.2.10
        t=0 0
        m=audio 11694 RTP/AVP 8 0 9 101
        a=rtpmap:8 PCMA/8000
        a=rtpmap:0 PCMU/8000
        a=rtpmap:9 G722/8000
        a=rtpmap:101 telephone-event/8000
        a=fmtp:101 0-16
        a=ptime:20
        a=maxptime:150
        a=sendrecv
    """),
    "freeswitch": _sdp("""
        v=0
        o=FreeSWITCH 1620202020 1620202021 IN IP4 192.0.2.11
        s=FreeSWITCH
        c=IN IP4 192.0.2.11
        t=0 0
        m=audio 17856 RTP/AVP 102 9 0 8 103 101 13
        a=rtpmap:102 opus/48000/2
        a=fmtp:102 useinbandfec=1; maxaveragebitrate=30000; maxplaybackrate=48000; minptime=10; maxptime=40
        a=rtpmap:9 G722/8000
        a=rtpmap:0 PCMU/8000
        a=rtpmap:8 PCMA/8000
        a=rtpmap:103 telephone-event/48000
        a=fmtp:103 0-16
        a=rtpmap:101 telephone-event/8000
        a=fmtp:101 0-16
        a=rtpmap:13 CN/8000
        a=ptime:20
    """),
    "cisco": _sdp("""
        v=0
        o=CiscoSystemsSIP-GW-UserAgent 4183 6519 IN IP4 192.0.2.12
        s=SIP Call
        c=IN IP4 192.0.2.12
        t=0 0
        m=audio 16648 RTP/AVP 18 0 100 101
        c=IN IP4 192.0.2.13
        a=rtpmap:18 G729/8000
        a=fmtp:18 annexb=no
        a=rtpmap:0 PCMU/8000
        a=rtpmap:100 X-NSE/8000
        a=fmtp:100 192-194
        a=rtpmap:101 telephone-event/8000
        a=fmtp:101 0-16
        a=ptime:30
    """),
    "sbc": _sdp("""
        v=0
        o=- 12345678 1 IN IP4 192.0.2.14
        s=session
        c=IN IP4 192.0.2.14
        b=CT:10000000
        t=0 0
        m=audio 50008 RTP/AVP 104 117 9 103 111 0 8 97 13 118 101
        a=rtcp:50009
        a=label:main-audio
        a=mid:1
        a=sendrecv
        a=rtpmap:104 SILK/16000
        a=rtpmap:117 G722/8000/2
        a=rtpmap:9 G722/8000
        a=rtpmap:103 SILK/8000
        a=rtpmap:111 SIREN/16000
        a=fmtp:111 bitrate=16000
        a=rtpmap:0 PCMU/8000
        a=rtpmap:8 PCMA/8000
        a=rtpmap:97 RED/8000
        a=rtpmap:13 CN/8000
        a=rtpmap:118 CN/16000
        a=rtpmap:101 telephone-event/8000
        a=fmtp:101 0-16
        a=ptime:20
        a=rtcp-mux
        m=video 50010 RTP/AVP 122
        a=rtpmap:122 X-H264UC/90000
        a=inactive
    """),
    "cloud": _sdp("""
        v=0
        o=root 868218046 868218046 IN IP4 192.0.2.15
        s=Cloud Media Gateway
        c=IN IP4 192.0.2.15
        t=0 0
        m=audio 10546 RTP/AVP 0 8 101
        a=rtpmap:0 PCMU/8000
        a=rtpmap:8 PCMA/8000
        a=rtpmap:101 telephone-event/8000
        a=fmtp:101 0-16
        a=ptime:20
        a=maxptime:20
        a=sendrecv
    """),
    "baresip": _sdp("""
        v=0
        o=- 3829103722 1870204801 IN IP6 2001:db8::16
        s=-
        c=IN IP6 2001:db8::16
        t=0 0
        a=tool:baresip 3.10.1
        m=audio 18336 RTP/AVP 96 9 0 8 101
        b=AS:125
        a=rtpmap:96 opus/48000/2
        a=fmtp:96 stereo=1;sprop-stereo=1
        a=rtpmap:9 G722/8000
        a=rtpmap:0 PCMU/8000
        a=rtpmap:8 PCMA/8000
        a=rtpmap:101 telephone-event/8000
        a=fmtp:101 0-15
        a=rtcp:18337
        a=sendrecv
        a=label:1
        a=rtcp-rsize
        a=ssrc:3374862183 cname:sip:me@example.com
        a=ptime:20
    """),
    "linphone": _sdp("""
        v=0
        o=alice 1873 3457 IN IP4 192.0.2.17
        s=Talk
        c=IN IP4 192.0.2.17
        t=0 0
        a=rtcp-xr:rcvr-rtt=all:10000 stat-summary=loss,dup,jitt,TTL voip-metrics
        m=audio 7078 RTP/AVPF 96 97 98 0 8 18 101 99 100
        a=rtpmap:96 opus/48000/2
        a=fmtp:96 useinbandfec=1
        a=rtpmap:97 speex/16000
        a=fmtp:97 vbr=on
        a=rtpmap:98 speex/8000
        a=rtpmap:101 telephone-event/48000
        a=rtpmap:99 telephone-event/16000
        a=rtpmap:100 telephone-event/8000
        a=rtcp-fb:* trr-int 1000
        a=rtcp-fb:* ccm tmmbr
        m=video 9078 RTP/AVPF 96 97
        a=rtpmap:96 VP8/90000
        a=rtpmap:97 H264/90000
    """),
    "sipp": _sdp("""
        v=0
        o=user1 53655765 2353687637 IN IP4 127.0.0.1
        s=-
        c=IN IP4 127.0.0.1
        t=0 0
        m=audio 6000 RTP/AVP 0
        a=rtpmap:0 PCMU/8000
    """),
    "terse": _sdp("""
        v=0
        o=x 1 1 IN IP4 192.0.2.18
        c=IN IP4 192.0.2.18
        m=audio 4000 RTP/AVP 8
    """, "\n"),
}  # fmt: skip
