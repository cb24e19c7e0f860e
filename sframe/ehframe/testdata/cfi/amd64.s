# Every call frame instruction that readelf shows, for x86-64. The functions
# are not meant to run: what counts is their call frame information.
	.text

# advance_loc, 1 and 2; the usual prologue and epilogue
	.type	plain, @function
plain:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	push	%rbx
	.cfi_offset %rbx, -24
	.skip	100, 0x90
	.cfi_offset %r12, -32		# advance_loc1
	.skip	300, 0x90
	.cfi_offset %r13, -40		# advance_loc2
	nop
	.cfi_restore %rbx
	leave
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	plain, .-plain

# each kind of register rule, restore to the rule of the CIE
	.type	rules, @function
rules:
	.cfi_startproc
	nop
	.cfi_same_value %rbx
	.cfi_undefined %r12
	nop
	.cfi_register %r13, %rax
	.cfi_val_offset %rsp, 24
	nop
	.cfi_offset %rax, -80		# no callee-saved register
	.cfi_offset %xmm0, -96		# no register of a set
	.cfi_register %r14, %xmm1	# in none
	nop
	.cfi_escape 0x10,0x0c,0x02,0x76,0x70		# expression r12: breg6 -16
	.cfi_escape 0x16,0x0f,0x02,0x77,0x08			# val_expression r15: breg7 8
	.cfi_escape 0x16,0x03,0x03,0x77,0x10,0x06		# val_expression rbx: breg7 16; deref
	.cfi_escape 0x10,0x06,0x03,0x76,0x78,0x06		# expression rbp: breg6 -8; deref
	nop
	.cfi_restore %rbx
	.cfi_restore %r12
	.cfi_restore %rip
	.cfi_restore %rbp
	nop
	.cfi_escape 0x05,0x03,0x04	# offset_extended rbx, 4*-8
	.cfi_escape 0x11,0x0c,0x7d	# offset_extended_sf r12, -3*-8
	.cfi_escape 0x14,0x0d,0x05	# val_offset r13, 5*-8
	.cfi_escape 0x15,0x0e,0x7e	# val_offset_sf r14, -2*-8
	.cfi_escape 0x2f,0x0f,0x03	# GNU_negative_offset_extended r15, -(3*-8)
	.cfi_escape 0x06,0x03		# restore_extended rbx
	nop
	.cfi_escape 0x2e,0x10		# GNU_args_size
	ret
	.cfi_endproc
	.size	rules, .-rules

# the ways to define a CFA; states in states
	.type	cfas, @function
cfas:
	.cfi_startproc
	nop
	.cfi_remember_state
	.cfi_def_cfa %r10, 0
	.cfi_offset %rbx, -32
	nop
	.cfi_remember_state
	.cfi_escape 0x0f,0x03,0x76,0x78,0x06	# def_cfa_expression breg6 -8; deref
	nop
	.cfi_def_cfa_register %r10		# back to the offset before the expression
	nop
	.cfi_escape 0x12,0x07,0x7c		# def_cfa_sf rsp, -4*-8
	nop
	.cfi_escape 0x13,0x78			# def_cfa_offset_sf -8*-8
	.cfi_escape 0x0a			# remember_state
	nop
	.cfi_def_cfa_offset 80
	nop
	.cfi_escape 0x0b			# restore_state
	nop
	.cfi_restore_state
	nop
	.cfi_restore_state
	ret
	.cfi_endproc
	.size	cfas, .-cfas

# a PLT's expression: the stack is deeper from the 11th of each 16 bytes on
	.type	lazy, @function
lazy:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	.skip	6, 0x90
	.cfi_def_cfa_offset 24
	.skip	10, 0x90
	.cfi_escape 0x0f,0x0b,0x77,0x08,0x80,0x00,0x3f,0x1a,0x3b,0x2a,0x33,0x24,0x22
	.skip	160, 0x90
	.cfi_endproc
	.size	lazy, .-lazy

# a signal trampoline
	.type	trampoline, @function
trampoline:
	.cfi_startproc
	.cfi_signal_frame
	.cfi_escape 0x0f,0x04,0x77,0xa0,0x01,0x06	# CFA = *(rsp+160)
	.cfi_escape 0x10,0x10,0x03,0x77,0xa8,0x01	# rip at rsp+168
	.cfi_escape 0x10,0x06,0x03,0x77,0xf8,0x00	# rbp at rsp+120
	.cfi_escape 0x10,0x07,0x03,0x77,0xa0,0x01	# rsp at rsp+160
	.cfi_escape 0x10,0x00,0x03,0x77,0x90,0x01	# rax at rsp+144
	nop
	.cfi_endproc
	.size	trampoline, .-trampoline

# the first frame of a stack
	.type	first, @function
first:
	.cfi_startproc
	.cfi_undefined %rip
	nop
	.cfi_same_value %rip
	nop
	.cfi_register %rip, %rdi
	nop
	.cfi_endproc
	.size	first, .-first

# only the CIE's row; a personality and an LSDA
	.type	bare, @function
bare:
	.cfi_startproc
	.cfi_personality 0x1b, plain
	.cfi_lsda 0x1b, plain
	ret
	.cfi_endproc
	.size	bare, .-bare

# the long ways to advance, which the assembler takes only in long functions
	.type	far, @function
far:
	.cfi_startproc
	.cfi_escape 0x04,0x10,0,0,0		# advance_loc4 16
	.cfi_escape 0x0e,0x18			# def_cfa_offset 24
	.cfi_escape 0x1d,0x20,0,0,0,0,0,0,0	# MIPS_advance_loc8 32
	.cfi_escape 0x0e,0x28			# def_cfa_offset 40
	.cfi_escape 0x04,0,0,0,0		# advance by nothing
	.cfi_escape 0x0e,0x30			# def_cfa_offset 48
	.cfi_escape 0x04,0,1,0,0		# past the end of the function
	.cfi_escape 0x0e,0x38			# def_cfa_offset 56
	.skip	64, 0x90
	.cfi_endproc
	.size	far, .-far
