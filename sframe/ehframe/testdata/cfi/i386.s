# Call frame information for 32-bit tracees.
	.text
	.type	plain, @function
plain:
	.cfi_startproc
	push	%ebp
	.cfi_def_cfa_offset 8
	.cfi_offset %ebp, -8
	mov	%esp, %ebp
	.cfi_def_cfa_register %ebp
	push	%esi
	.cfi_offset %esi, -12
	push	%edi
	.cfi_offset %edi, -16
	.skip	300, 0x90
	.cfi_escape 0x2e,0x10
	leave
	.cfi_restore %ebp
	.cfi_restore %esi
	.cfi_restore %edi
	.cfi_def_cfa %esp, 4
	ret
	.cfi_endproc
	.size	plain, .-plain

# main of a program that realigns its stack: CFA = *(ebp-4)
	.type	realigned, @function
realigned:
	.cfi_startproc
	lea	4(%esp), %ecx
	.cfi_def_cfa %ecx, 0
	and	$-16, %esp
	push	-4(%ecx)
	push	%ebp
	.cfi_escape 0x10,0x05,0x02,0x75,0x00
	mov	%esp, %ebp
	push	%ecx
	.cfi_escape 0x0f,0x03,0x75,0x7c,0x06
	mov	-4(%ebp), %ecx
	.cfi_def_cfa %ecx, 0
	leave
	.cfi_restore %ebp
	lea	-4(%ecx), %esp
	.cfi_def_cfa %esp, 4
	ret
	.cfi_endproc
	.size	realigned, .-realigned

	.type	lazy, @function
lazy:
	.cfi_startproc
	.cfi_def_cfa_offset 8
	.skip	6, 0x90
	.cfi_def_cfa_offset 12
	.skip	10, 0x90
	.cfi_escape 0x0f,0x0b,0x74,0x04,0x78,0x00,0x3f,0x1a,0x3b,0x2a,0x32,0x24,0x22
	.skip	32, 0x90
	.cfi_endproc
	.size	lazy, .-lazy

	.type	first, @function
first:
	.cfi_startproc
	.cfi_undefined %eip
	nop
	.cfi_endproc
	.size	first, .-first
