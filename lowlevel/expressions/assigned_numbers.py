"""Names of IP protocols and of ports, from the IANA registries.

The names of protocols are the keywords in "Assigned Internet Protocol Numbers", in lower case. The names of ports are a
selection from the "Service Name and Transport Protocol Port Number Registry" (RFC 6335): the most frequent services.
Other numbers have no name.
"""

from __future__ import annotations

from functools import cache

from lowlevel.expressions.types import Scalar

_PROTOCOLS = """
0 hopopt  1 icmp  2 igmp  3 ggp  4 ipv4  5 st  6 tcp  7 cbt  8 egp  9 igp  10 bbn-rcc-mon  11 nvp-ii  12 pup
13 argus  14 emcon  15 xnet  16 chaos  17 udp  18 mux  19 dcn-meas  20 hmp  21 prm  22 xns-idp  23 trunk-1
24 trunk-2  25 leaf-1  26 leaf-2  27 rdp  28 irtp  29 iso-tp4  30 netblt  31 mfe-nsp  32 merit-inp  33 dccp
34 3pc  35 idpr  36 xtp  37 ddp  38 idpr-cmtp  39 tp++  40 il  41 ipv6  42 sdrp  43 ipv6-route  44 ipv6-frag
45 idrp  46 rsvp  47 gre  48 dsr  49 bna  50 esp  51 ah  52 i-nlsp  53 swipe  54 narp  55 min-ipv4  56 tlsp
57 skip  58 ipv6-icmp  59 ipv6-nonxt  60 ipv6-opts  62 cftp  64 sat-expak  65 kryptolan  66 rvd  67 ippc
69 sat-mon  70 visa  71 ipcv  72 cpnx  73 cphb  74 wsn  75 pvp  76 br-sat-mon  77 sun-nd  78 wb-mon  79 wb-expak
80 iso-ip  81 vmtp  82 secure-vmtp  83 vines  84 iptm  85 nsfnet-igp  86 dgp  87 tcf  88 eigrp  89 ospf
90 sprite-rpc  91 larp  92 mtp  93 ax.25  94 ipip  95 micp  96 scc-sp  97 etherip  98 encap  100 gmtp  101 ifmp
102 pnni  103 pim  104 aris  105 scps  106 qnx  107 a/n  108 ipcomp  109 snp  110 compaq-peer  111 ipx-in-ip
112 vrrp  113 pgm  115 l2tp  116 ddx  117 iatp  118 stp  119 srp  120 uti  121 smp  122 sm  123 ptp  124 isis
125 fire  126 crtp  127 crudp  128 sscopmce  129 iplt  130 sps  131 pipe  132 sctp  133 fc  134 rsvp-e2e-ignore
135 mobility  136 udplite  137 mpls-in-ip  138 manet  139 hip  140 shim6  141 wesp  142 rohc  143 ethernet
144 aggfrag  145 nsh  146 homa
"""

_PORTS = """
7 echo  9 discard  11 systat  13 daytime  17 qotd  19 chargen  20 ftp-data  21 ftp  22 ssh  23 telnet  25 smtp
37 time  43 whois  49 tacacs  53 domain  67 bootps  68 bootpc  69 tftp  70 gopher  79 finger  80 http
88 kerberos  102 iso-tsap  109 pop2  110 pop3  111 sunrpc  113 auth  119 nntp  123 ntp  135 epmap
137 netbios-ns  138 netbios-dgm  139 netbios-ssn  143 imap  161 snmp  162 snmptrap  177 xdmcp  179 bgp  194 irc
199 smux  201 at-rtmp  264 bgmp  319 ptp-event  320 ptp-general  323 rpki-rtr  389 ldap  401 ups  427 svrloc
443 https  444 snpp  445 microsoft-ds  464 kpasswd  500 isakmp  502 mbap  512 exec  513 login  514 shell
515 printer  517 talk  518 ntalk  520 router  521 ripng  530 courier  540 uucp  543 klogin  544 kshell
546 dhcpv6-client  547 dhcpv6-server  548 afpovertcp  554 rtsp  563 nntps  587 submission  593 http-rpc-epmap
601 syslog-conn  623 asf-rmcp  631 ipp  636 ldaps  639 msdp  646 ldp  647 dhcp-failover  674 acap
694 ha-cluster  698 olsr  700 epp  749 kerberos-adm  750 kerberos-iv  802 mbap-s  830 netconf-ssh  853 domain-s
860 iscsi  861 owamp-control  862 twamp-control  873 rsync  989 ftps-data  990 ftps  992 telnets  993 imaps
995 pop3s  1080 socks  1194 openvpn  1352 lotusnote  1433 ms-sql-s  1434 ms-sql-m  1512 wins  1701 l2tp
1720 h323hostcall  1723 pptp  1812 radius  1813 radius-acct  1883 mqtt  1900 ssdp  1985 hsrp  2000 cisco-sccp
2049 nfs  2083 radsec  2086 gnunet  2123 gtp-control  2152 gtp-user  2222 ethernet-ip-1  2375 docker
2376 docker-s  2379 etcd-client  2380 etcd-server  2404 iec-104  2427 mgcp-gateway  2598 citriximaclient
3260 iscsi-target  3268 msft-gc  3269 msft-gc-ssl  3306 mysql  3389 ms-wbt-server  3478 stun  3544 teredo
3632 distcc  3702 ws-discovery  3784 bfd-control  3785 bfd-echo  3868 diameter  4369 epmd  4500 ipsec-nat-t
4739 ipfix  4740 ipfixs  4784 bfd-multi-ctl  4789 vxlan  4840 opcua-tcp  5004 avt-profile-1  5005 avt-profile-2
5060 sip  5061 sips  5222 xmpp-client  5246 capwap-control  5247 capwap-data  5269 xmpp-server  5349 stuns
5351 nat-pmp  5353 mdns  5355 llmnr  5432 postgresql  5568 sdt  5671 amqps  5672 amqp  5683 coap  5684 coaps
5900 rfb  5985 wsman  5986 wsmans  6000 x11  6081 geneve  6343 sflow  6379 redis  6514 syslog-tls  6653 openflow
6696 babel  6881 bittorrent  7547 cwmp  8080 http-alt  8883 secure-mqtt  9100 hp-pdl-datastr  9418 git
11211 memcache  19999 dnp-sec  20000 dnp  27017 mongodb  44818 ethernet-ip-2  47808 bacnet  51820 wireguard
"""

ALIASES = {
    Scalar.PROTOCOL_NAME: {"icmp6": 58, "icmpv6": 58, "ip": 4, "ospfigp": 89},
    Scalar.PORT_NAME: {"dns": 53, "dhcp": 67, "smb": 445, "syslog": 514, "rdp": 3389, "vnc": 5900, "nicname": 43},
}
"""Other names that queries may use in comparisons: common names, and less common IANA names."""

NUMBER_COUNTS = {Scalar.PROTOCOL_NAME: 256, Scalar.PORT_NAME: 65536}
"""The count of numbers of each function: protocol numbers have 8 bits, port numbers 16."""


@cache
def names_of(function: Scalar) -> dict[int, str]:
    """Return names by number. All names are different.

    >>> names_of(Scalar.PROTOCOL_NAME)[6], names_of(Scalar.PORT_NAME)[443]
    ('tcp', 'https')
    """
    words = (_PROTOCOLS if function is Scalar.PROTOCOL_NAME else _PORTS).split()
    return {int(number): name for number, name in zip(words[::2], words[1::2], strict=True)}
