package ptrace

// Numbers of system calls of a 32-bit program (arch/x86/entry/syscalls/syscall_32.tbl).
const (
	i386Read           = 3
	i386Write          = 4
	i386Open           = 5
	i386Access         = 33
	i386Readlink       = 85
	i386Socketcall     = 102
	i386IPC            = 117
	i386Getdents       = 141
	i386Select         = 142
	i386Readv          = 145
	i386Writev         = 146
	i386Nanosleep      = 162
	i386Poll           = 168
	i386Sigtimedwait   = 177
	i386Pread64        = 180
	i386Stat64         = 195
	i386Lstat64        = 196
	i386Fstat64        = 197
	i386Getdents64     = 220
	i386Futex          = 240
	i386Getevents      = 247
	i386EpollWait      = 256
	i386ClockNanosleep = 267
	i386Openat         = 295
	i386Fstatat64      = 300
	i386Readlinkat     = 305
	i386Faccessat      = 307
	i386Pselect6       = 308
	i386Ppoll          = 309
	i386EpollPwait     = 319
	i386Preadv         = 333
	i386Recvmmsg       = 337
	i386Sendmmsg       = 345
	i386Connect        = 362
	i386Accept4        = 364
	i386Sendto         = 369
	i386Sendmsg        = 370
	i386Recvfrom       = 371
	i386Recvmsg        = 372
	i386Preadv2        = 378
	i386Statx          = 383
	i386Pgetevents     = 385
	i386ClockSleep64   = 407
	i386Pselect64      = 413
	i386Ppoll64        = 414
	i386Pgetevents64   = 416
	i386Recvmmsg64     = 417
	i386Semtimedop64   = 420
	i386Sigtimedwait64 = 421
	i386Futex64        = 422
	i386UringEnter     = 426
	i386Faccessat2     = 439
	i386EpollPwait2    = 441
)

// First arguments of socketcall (include/uapi/linux/net.h) and of ipc (include/uapi/linux/ipc.h).
const (
	socketConnect  = 3
	socketAccept   = 5
	socketSend     = 9
	socketRecv     = 10
	socketSendto   = 11
	socketRecvfrom = 12
	socketSendmsg  = 16
	socketRecvmsg  = 17
	socketAccept4  = 18
	socketRecvmmsg = 19
	socketSendmmsg = 20
	ipcSemop       = 1
	ipcSemtimedop  = 4
)
