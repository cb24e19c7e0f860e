package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// fault is one change of a source file: text in the place of the bytes from
// from to to.
type fault struct {
	file     string // base name
	fn       string // function that it is in; empty: none
	line     int
	from, to int
	text     string
	src      []byte // of the whole file
}

// changed is the file with the fault.
func (f *fault) changed() []byte {
	return []byte(string(f.src[:f.from]) + f.text + string(f.src[f.to:]))
}

// lines are the lines that the fault changes, before and after, without the
// space around them.
func (f *fault) lines() (before, after string) {
	start := strings.LastIndexByte(string(f.src[:f.from]), '\n') + 1
	end := len(f.src)
	if i := strings.IndexByte(string(f.src[f.to:]), '\n'); i >= 0 {
		end = f.to + i
	}
	flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	return flat(string(f.src[start:end])), flat(string(f.src[start:f.from]) + f.text + string(f.src[f.to:end]))
}

// Each operator is taken for one that is easily written in its place.
var operators = map[token.Token]string{
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*",
	token.AND: "|", token.OR: "&", token.XOR: "&", token.AND_NOT: "&", token.SHL: ">>", token.SHR: "<<",
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.LAND: "||", token.LOR: "&&",
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.MUL_ASSIGN: "/=", token.OR_ASSIGN: "&=",
	token.AND_ASSIGN: "|=", token.AND_NOT_ASSIGN: "|=", token.SHL_ASSIGN: ">>=", token.SHR_ASSIGN: "<<=",
	token.INC: "--", token.DEC: "++",
}

// finder collects the faults of a file.
type finder struct {
	name   string
	src    []byte
	set    *token.FileSet
	fn     string
	faults []fault
}

// faultsOf returns all faults that can be planted in a source file, in order.
func faultsOf(name string, src []byte) ([]fault, error) {
	f := &finder{name: name, src: src, set: token.NewFileSet()}
	file, err := parser.ParseFile(f.set, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		f.fn = ""
		if fd, ok := d.(*ast.FuncDecl); ok {
			f.fn = fd.Name.Name
		}
		if gd, ok := d.(*ast.GenDecl); ok && gd.Tok == token.IMPORT {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool { f.visit(n); return true })
	}
	return f.faults, nil
}

// replace plants text in the place of what lies from from to to.
func (f *finder) replace(from, to token.Pos, text string) {
	p := f.set.Position(from)
	f.faults = append(f.faults, fault{
		file: f.name, fn: f.fn, line: p.Line, from: p.Offset, to: f.set.Position(to).Offset, text: text, src: f.src,
	})
}

func (f *finder) operator(at token.Pos, op token.Token) {
	if text, ok := operators[op]; ok {
		f.replace(at, at+token.Pos(len(op.String())), text)
	}
}

func (f *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.operator(n.OpPos, n.Op)
		if n.Op == token.LAND || n.Op == token.LOR {
			f.negate(n.X)
			f.negate(n.Y)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT || n.Op == token.SUB {
			f.replace(n.OpPos, n.OpPos+1, "")
		}
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.BasicLit:
		f.literal(n)
	case *ast.Ident:
		switch n.Name {
		case "true":
			f.replace(n.Pos(), n.End(), "false")
		case "false":
			f.replace(n.Pos(), n.End(), "true")
		}
	case *ast.AssignStmt:
		f.operator(n.TokPos, n.Tok)
	case *ast.IncDecStmt:
		f.operator(n.TokPos, n.Tok)
	case *ast.BlockStmt:
		f.remove(n.List)
	case *ast.CaseClause:
		f.remove(n.Body)
	}
}

// negate plants !cond where no other fault does the like.
func (f *finder) negate(cond ast.Expr) {
	switch cond.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.CallExpr, *ast.IndexExpr:
		f.replace(cond.Pos(), cond.Pos(), "!")
	}
}

// literal plants a whole number that is one more, or one less: which, its place in the line tells, so that it stays the
// same when other lines change.
func (f *finder) literal(n *ast.BasicLit) {
	if n.Kind != token.INT && n.Kind != token.CHAR {
		return
	}
	by := "+ 1"
	if n.Value != "0" && f.set.Position(n.Pos()).Column%2 == 1 {
		by = "- 1"
	}
	f.replace(n.Pos(), n.End(), fmt.Sprintf("(%s %s)", n.Value, by))
}

// remove takes out each statement that has an effect and whose absence may
// compile.
func (f *finder) remove(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.BranchStmt, *ast.DeferStmt:
		case *ast.ReturnStmt:
			if s.Results != nil {
				continue
			}
		default:
			continue
		}
		f.replace(s.Pos(), s.End(), "")
	}
}
