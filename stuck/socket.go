package stuck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// socket fills in what is known of a socket: addresses from the tables of its own
// network namespace, or a unix socket's other end from the kernel.
func (d *descriptors) socket(t *Thread, f *FD) {
	for _, table := range socketTables {
		s, ok := d.sockets(t).byInode[table][f.Inode]
		if !ok {
			continue
		}
		f.Kind = table[:3]
		f.Socket.Local, f.Socket.State, f.Socket.RecvQ, f.Socket.SendQ, f.Socket.Queues = s.Local.String(), s.State, s.RecvQ, s.SendQ, true
		if f.Socket.State == "LISTEN" {
			f.Note, f.Socket.Queues = fmt.Sprintf("(%d waiting to be accepted)", s.RecvQ), false
		}
		if f.Kind == "udp" {
			f.Socket.State = ""
		}
		if s.Remote.Port() != 0 {
			f.Socket.Remote = s.Remote.String()
			d.tcpPeer(t, f, s)
		}
		if s.RecvQ > 0 {
			f.Ready = "there is something to read"
		}
		return
	}
	u, err := unixSocket(d.fs, t, uint32(f.Inode))
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		d.missing.add("unix sockets' other ends: %v (try: as root, in the process's network namespace)", err)
	default:
		f.Kind, f.Path, f.Peer = "unix", u.name, uint64(u.peer)
		f.Socket.RecvQ, f.Socket.SendQ, f.Socket.Queues = uint64(u.recvQ), uint64(u.sendQ), u.state != unixListen
		if u.state == unixListen {
			f.Socket.State, f.Note = "LISTEN", fmt.Sprintf("(%d waiting to be accepted)", u.recvQ)
		}
		if u.recvQ > 0 {
			f.Ready = "there is something to read"
		}
	}
}

// tables are the sockets of a network namespace.
type tables struct {
	byInode map[string]map[uint64]procfs.Socket // by table
	tcp     map[[2]netip.AddrPort]procfs.Socket // by local and remote address
	listen  map[netip.AddrPort][]uint64         // inodes of who listens, by address
}

// sockets reads the tables of the namespace that the thread is in, once for each.
func (d *descriptors) sockets(t *Thread) *tables {
	ns, err := d.fs.Namespace(t.TID, "net")
	if err != nil {
		ns = strconv.Itoa(t.PID)
	}
	if n := d.nets[ns]; n != nil {
		return n
	}
	n := &tables{map[string]map[uint64]procfs.Socket{}, map[[2]netip.AddrPort]procfs.Socket{}, map[netip.AddrPort][]uint64{}}
	d.nets[ns] = n
	for _, table := range socketTables {
		list, whole, err := d.fs.Sockets(t.TID, table)
		if err != nil && !procfs.Gone(err) {
			d.missing.add("%s sockets: %v", table, err)
		}
		if err == nil && !whole {
			d.missing.add("%s sockets beyond the first %d", table, len(list))
		}
		n.byInode[table] = make(map[uint64]procfs.Socket, len(list))
		for _, s := range list {
			if table[:3] == "tcp" {
				n.tcp[[2]netip.AddrPort{s.Local, s.Remote}] = s
			}
			if s.State == "LISTEN" {
				n.listen[s.Local] = append(n.listen[s.Local], s.Inode)
			}
			if s.Inode != 0 {
				n.byInode[table][s.Inode] = s
			}
		}
	}
	return n
}

var socketTables = []string{"tcp", "tcp6", "udp", "udp6"}

// tcpPeer finds the other end of a connection in the same network namespace.
func (d *descriptors) tcpPeer(t *Thread, f *FD, s procfs.Socket) {
	if f.Kind != "tcp" {
		return
	}
	n := d.sockets(t)
	peer, known := n.tcp[[2]netip.AddrPort{s.Remote, s.Local}]
	switch f.Peer = peer.Inode; {
	case f.Peer != 0:
	case known && slices.Contains(beforeAccept, peer.State):
		f.Peer, f.Note = n.listener(s.Remote), "(not accepted yet by who listens there)"
	case s.Remote.Addr().IsLoopback():
		f.Note = "(nobody is at the other end)"
	default:
		f.Note = "(the other end is on another machine or in another network namespace)"
	}
}

// beforeAccept are the states of a connection that no process has yet: no inode belongs to it. (In others it is one that was closed.)
var beforeAccept = []string{"ESTABLISHED", "SYN_RECV", "NEW_SYN_RECV", "CLOSE_WAIT"}

// listener finds who listens at an address, or at its port on all addresses. 0: nobody does, or several.
func (n *tables) listener(at netip.AddrPort) uint64 {
	for _, addr := range []netip.Addr{at.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		switch list := n.listen[netip.AddrPortFrom(addr, at.Port())]; len(list) {
		case 0:
		case 1:
			return list[0]
		default:
			return 0
		}
	}
	return 0
}

const unixListen = 10 // TCP_LISTEN, net/unix/diag.c

// unixState is what the kernel tells of a unix socket.
type unixState struct {
	name         string
	peer         uint32
	state        uint8
	recvQ, sendQ uint32
}

// unixSocket asks sock_diag(7) about one socket, in the network namespace of the
// thread.
func unixSocket(fs procfs.FS, t *Thread, inode uint32) (u unixState, err error) {
	theirs, err1 := fs.Namespace(t.TID, "net")
	ours, err2 := fs.Namespace(os.Getpid(), "net")
	if err1 != nil || err2 != nil || theirs == ours {
		return askUnix(inode)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends in their namespace
		var ns int
		if ns, err = unix.Open(fs.Path(t.TID, "ns", "net"), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		defer unix.Close(ns)
		if err = unix.Setns(ns, unix.CLONE_NEWNET); err == nil {
			u, err = askUnix(inode)
		}
	}()
	<-done
	return u, err
}

// Sizes and numbers of include/uapi/linux/{netlink,sock_diag,unix_diag}.h.
const (
	sockDiagByFamily = 20
	unixShow         = 0x1 | 0x4 | 0x10 // UDIAG_SHOW_NAME, _PEER, _RQLEN
	unixName         = 0
	unixPeer         = 2
	unixRQLen        = 4
	unixReqBytes     = 24
	unixMsgBytes     = 16
	diagTimeout      = 20_000 // µs
)

// askUnix asks about one socket of our own network namespace. ENOENT: it is none.
func askUnix(inode uint32) (unixState, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return unixState{}, fmt.Errorf("sock_diag: %w", err)
	}
	defer unix.Close(s)
	tv := unix.NsecToTimeval(diagTimeout * 1000)
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return unixState{}, fmt.Errorf("sock_diag: %w", err)
	}
	e := binary.NativeEndian
	req := make([]byte, unix.NLMSG_HDRLEN+unixReqBytes)
	e.PutUint32(req, uint32(len(req)))
	e.PutUint16(req[4:], sockDiagByFamily)
	e.PutUint16(req[6:], unix.NLM_F_REQUEST)
	body := req[unix.NLMSG_HDRLEN:]
	body[0] = unix.AF_UNIX
	e.PutUint32(body[4:], ^uint32(0)) // states
	e.PutUint32(body[8:], inode)
	e.PutUint32(body[12:], unixShow)
	e.PutUint64(body[16:], ^uint64(0)) // no cookie
	if err := unix.Sendto(s, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return unixState{}, fmt.Errorf("sock_diag: %w", err)
	}
	buf := make([]byte, 8192)
	n, _, err := unix.Recvfrom(s, buf, 0)
	if err != nil {
		return unixState{}, fmt.Errorf("sock_diag: %w", err)
	}
	return parseUnix(buf[:n], inode)
}

// parseUnix reads the answer: a header, struct unix_diag_msg, attributes.
func parseUnix(b []byte, inode uint32) (u unixState, err error) {
	e := binary.NativeEndian
	short := errors.New("sock_diag: short answer")
	if len(b) < unix.NLMSG_HDRLEN+4 {
		return u, short
	}
	if e.Uint16(b[4:]) == unix.NLMSG_ERROR {
		return u, unix.Errno(-int32(e.Uint32(b[unix.NLMSG_HDRLEN:])))
	}
	b = b[unix.NLMSG_HDRLEN:]
	if len(b) < unixMsgBytes || e.Uint32(b[4:]) != inode {
		return u, short
	}
	u.state = b[2]
	for b = b[unixMsgBytes:]; len(b) >= 4; {
		size, kind := int(e.Uint16(b)), e.Uint16(b[2:])
		if size < 4 || size > len(b) {
			break
		}
		v := b[4:size]
		switch {
		case kind == unixName:
			u.name = socketName(v)
		case kind == unixPeer && len(v) >= 4:
			u.peer = e.Uint32(v)
		case kind == unixRQLen && len(v) >= 8:
			u.recvQ, u.sendQ = e.Uint32(v), e.Uint32(v[4:])
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return u, nil
}

// socketName is a unix socket's path, or its abstract name with an @ before it.
func socketName(b []byte) string {
	if len(b) > 0 && b[0] == 0 {
		return "@" + string(b[1:])
	}
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
