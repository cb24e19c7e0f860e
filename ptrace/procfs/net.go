package procfs

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// Socket is one line of /proc/PID/net/{tcp,udp}{,6}.
type Socket struct {
	Local, Remote netip.AddrPort
	State         string // "ESTABLISHED", as netstat has it
	SendQ, RecvQ  uint64 // bytes; of a listener RecvQ is how many wait to be accepted
	Inode         uint64
}

// tcpStates by number (include/net/tcp_states.h).
var tcpStates = []string{"", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE",
	"CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"}

// maxSockets bounds what is read of one table, in bytes.
const maxSockets = 16 << 20

// Sockets reads one table ("tcp", "tcp6", "udp", "udp6") of the network namespace
// that thread id is in, and whether it is whole.
func (f FS) Sockets(id int, table string) (list []Socket, whole bool, err error) {
	b, err := readFile(f.Path(id, "net", table), maxSockets)
	if err != nil {
		return nil, false, err
	}
	return ParseSockets(b), len(b) < maxSockets, nil
}

// ParseSockets parses the content of such a table (get_tcp4_sock, net/ipv4/tcp_ipv4.c;
// the addresses are the bytes of the wire, printed as words of this machine). Lines of
// another form are skipped.
func ParseSockets(b []byte) []Socket {
	var list []Socket
	for line := range bytes.Lines(b) {
		if s, ok := parseSocket(bytes.Fields(line)); ok {
			list = append(list, s)
		}
	}
	return list
}

func parseSocket(w [][]byte) (s Socket, ok bool) {
	if len(w) < 10 {
		return s, false
	}
	var ok1, ok2 bool
	s.Local, ok1 = socketAddr(w[1])
	s.Remote, ok2 = socketAddr(w[2])
	state, _, ok3 := hex(w[3])
	send, recv, found := bytes.Cut(w[4], []byte{':'})
	if !ok1 || !ok2 || !ok3 || !found {
		return s, false
	}
	if state < uint64(len(tcpStates)) {
		s.State = tcpStates[state]
	}
	s.SendQ, _, ok1 = hex(send)
	s.RecvQ, _, ok2 = hex(recv)
	s.Inode, _, ok3 = decimal(w[9])
	return s, ok1 && ok2 && ok3
}

// socketAddr reads "0100007F:1F90", or 32 digits before the port.
func socketAddr(b []byte) (netip.AddrPort, bool) {
	host, port, _ := bytes.Cut(b, []byte{':'})
	if len(host) != 8 && len(host) != 32 {
		return netip.AddrPort{}, false
	}
	raw := make([]byte, len(host)/2)
	for i := 0; i < len(raw); i += 4 { // each word is printed as a number
		n, rest, ok := hex(host[2*i : 2*i+8])
		if !ok || len(rest) > 0 {
			return netip.AddrPort{}, false
		}
		binary.NativeEndian.PutUint32(raw[i:], uint32(n))
	}
	addr, _ := netip.AddrFromSlice(raw)
	p, rest, ok := hex(port)
	return netip.AddrPortFrom(addr.Unmap(), uint16(p)), ok && len(rest) == 0 && p < 1<<16
}
