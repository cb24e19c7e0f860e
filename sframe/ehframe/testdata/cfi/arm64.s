// Call frame information for arm64, assembled in both byte orders.
	.text
	.type	plain, %function
plain:
	.cfi_startproc
	stp	x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset 29, -48
	.cfi_offset 30, -40
	mov	x29, sp
	.cfi_def_cfa_register 29
	stp	x19, x20, [sp, #16]
	.cfi_offset 19, -32
	.cfi_offset 20, -24
	str	d8, [sp, #32]
	.cfi_offset 72, -16		// v8, no register of a set
	ldp	x19, x20, [sp, #16]
	.cfi_restore 20
	.cfi_restore 19
	ldp	x29, x30, [sp], #48
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa 31, 0
	ret
	.cfi_endproc
	.size	plain, .-plain

// the return address is signed between paciasp and autiasp
	.type	signed, %function
signed:
	.cfi_startproc
	hint	25
	.cfi_negate_ra_state
	stp	x29, x30, [sp, #-16]!
	.cfi_def_cfa_offset 16
	.cfi_offset 29, -16
	.cfi_offset 30, -8
	nop
	.cfi_remember_state
	ldp	x29, x30, [sp], #16
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	hint	29
	.cfi_negate_ra_state
	ret
	.cfi_restore_state
	nop
	.cfi_endproc
	.size	signed, .-signed

// signed with key B
	.type	keyb, %function
keyb:
	.cfi_startproc
	.cfi_b_key_frame
	hint	27
	.cfi_negate_ra_state
	nop
	.cfi_endproc
	.size	keyb, .-keyb

// the return address in another register, a CFA on one
	.type	moved, %function
moved:
	.cfi_startproc
	mov	x16, x30
	.cfi_register 30, 16
	mov	x17, sp
	.cfi_def_cfa 17, 0
	nop
	.cfi_val_offset 31, 32
	nop
	.cfi_escape 0x10,0x1e,0x02,0x8f,0x08	// expression x30: breg31 8
	.cfi_escape 0x0f,0x03,0x8d,0x10,0x06	// def_cfa_expression breg29 16; deref
	ret
	.cfi_endproc
	.size	moved, .-moved

	.type	first, %function
first:
	.cfi_startproc
	.cfi_undefined 30
	nop
	.cfi_endproc
	.size	first, .-first

	.type	trampoline, %function
trampoline:
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa 29, 0
	.cfi_offset 29, 0
	.cfi_offset 30, 8
	nop
	.cfi_endproc
	.size	trampoline, .-trampoline
