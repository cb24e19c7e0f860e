# Call frame information for s390x.
	.text
	.type	plain, @function
plain:
	.cfi_startproc
	stmg	%r11,%r15,88(%r15)
	.cfi_offset %r11, -72
	.cfi_offset %r12, -64
	.cfi_offset %r13, -56
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	aghi	%r15,-168
	.cfi_def_cfa_offset 328
	lgr	%r11,%r15
	.cfi_def_cfa_register %r11
	std	%f8,160(%r11)
	.cfi_offset %f8, -168
	nopr
	.cfi_remember_state
	lmg	%r11,%r15,256(%r11)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r13
	.cfi_restore %r12
	.cfi_restore %r11
	.cfi_def_cfa %r15, 160
	br	%r14
	.cfi_restore_state
	nopr
	.cfi_endproc
	.size	plain, .-plain

# a leaf keeps registers in floating-point registers
	.type	leaf, @function
leaf:
	.cfi_startproc
	ldgr	%f2,%r11
	.cfi_register %r11, %f2
	ldgr	%f0,%r14
	.cfi_register %r14, %f0
	lgr	%r1,%r15
	.cfi_register %r15, %r1
	lgdr	%r11,%f2
	.cfi_restore %r11
	br	%r14
	.cfi_endproc
	.size	leaf, .-leaf

# returns by r0, as _mcount does
	.type	counter, @function
counter:
	.cfi_startproc
	.cfi_return_column %r0
	stm	%r14,%r15,112(%r15)
	.cfi_offset %r14, -48
	.cfi_val_offset %r15, -160
	nopr
	.cfi_offset %r0, -208
	br	%r0
	.cfi_endproc
	.size	counter, .-counter

	.type	first, @function
first:
	.cfi_startproc
	.cfi_undefined %r14
	nopr
	.cfi_endproc
	.size	first, .-first

# saved where an expression says
	.type	expressions, @function
expressions:
	.cfi_startproc
	nopr
	.cfi_escape 0x10,0x0e,0x03,0x7f,0xf0,0x00	# expression r14: breg15 112
	.cfi_escape 0x0f,0x03,0x7b,0x00,0x06		# def_cfa_expression breg11 0; deref
	br	%r14
	.cfi_endproc
	.size	expressions, .-expressions
