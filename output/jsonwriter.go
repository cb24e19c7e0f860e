package output

import (
	"bufio"
	"strconv"
	"time"
)

// jsonWriter writes one JSON document, piece by piece. out remembers its first
// error.
type jsonWriter struct {
	out   *bufio.Writer
	comma bool // a value stands before this place
	buf   []byte
}

// separate writes the comma between values, where one is needed.
func (j *jsonWriter) separate() {
	if j.comma {
		j.out.WriteByte(',')
	}
	j.comma = false
}

func (j *jsonWriter) open(bracket byte) {
	j.separate()
	j.out.WriteByte(bracket)
}

func (j *jsonWriter) close(bracket byte) {
	j.out.WriteByte(bracket)
	j.comma = true
}

// name writes the name of a field; its value follows.
func (j *jsonWriter) name(s string) {
	j.separate()
	j.out.Write(append(appendJSON(j.buf[:0], s), ':'))
}

// raw writes a value that is JSON already.
func (j *jsonWriter) raw(value string) {
	j.separate()
	j.out.WriteString(value)
	j.comma = true
}

func (j *jsonWriter) string(s string) {
	j.separate()
	j.buf = appendJSON(j.buf[:0], s)
	j.out.Write(j.buf)
	j.comma = true
}

func (j *jsonWriter) strings(list []string) {
	j.open('[')
	for _, s := range list {
		j.string(s)
	}
	j.close(']')
}

func (j *jsonWriter) int(v int64) {
	j.separate()
	j.buf = strconv.AppendInt(j.buf[:0], v, 10)
	j.out.Write(j.buf)
	j.comma = true
}

func (j *jsonWriter) float(v float64) {
	j.separate()
	j.buf = strconv.AppendFloat(j.buf[:0], v, 'f', -1, 64)
	j.out.Write(j.buf)
	j.comma = true
}

func (j *jsonWriter) text(name, value string) {
	j.name(name)
	j.string(value)
}

func (j *jsonWriter) field(name string, v int64) {
	j.name(name)
	j.int(v)
}

// table begins an object of columns with n rows.
func (j *jsonWriter) table(name string, n int) {
	j.name(name)
	j.open('{')
	j.field("length", int64(n))
}

// column writes n numbers, null for those below 0.
func (j *jsonWriter) column(name string, n int, value func(i int) int64) {
	j.name(name)
	j.open('[')
	for i := range n {
		if v := value(i); v < 0 {
			j.raw("null")
		} else {
			j.int(v)
		}
	}
	j.close(']')
}

// times writes n times in milliseconds.
func (j *jsonWriter) times(name string, n int, value func(i int) time.Duration) {
	j.name(name)
	j.open('[')
	for i := range n {
		j.float(float64(value(i).Microseconds()) / 1e3)
	}
	j.close(']')
}

// constant writes n times the same value.
func (j *jsonWriter) constant(name string, n int, value string) {
	j.name(name)
	j.open('[')
	for range n {
		j.raw(value)
	}
	j.close(']')
}
