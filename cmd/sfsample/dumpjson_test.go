package main

import (
	"encoding/json"
	"errors"
	"testing"
)

// UnmarshalJSON implements json.Unmarshaler.
func (t *jsonThread) UnmarshalJSON(b []byte) error {
	return errors.Join(json.Unmarshal(b, &t.Task), json.Unmarshal(b, &t.Between), json.Unmarshal(b, &t.Call), json.Unmarshal(b, &t.Stack))
}

// TestThreadJSON: a thread is one object, and what is not known is left out of it.
func TestThreadJSON(t *testing.T) {
	for _, tt := range []struct {
		thread jsonThread
		want   string
	}{
		{jsonThread{}, `{"pid":0,"tid":0,"inner_tid":0,"process":"","name":"","state":"","outside":false,"motion":"","cpu_ns":0,"runs":0,"frames":null}`},
		{jsonThread{Task: jsonTask{1, 2, 3, "p<", "n\"}", "S", true}, Between: jsonBetween{"ran", 4, 5, 6, 7}, Call: jsonCall{"read", []string{"0x8"}, &jsonWait{Kind: "fd"}},
			Stack: jsonStack{"stop", []jsonFrame{{Func: "f"}}, "cut"}},
			`{"pid":1,"tid":2,"inner_tid":3,"process":"p\u003c","name":"n\"}","state":"S","outside":true,"motion":"ran","idle_ns":4,"idle_at_least_ns":5,"cpu_ns":6,"runs":7,` +
				`"call":"read","args":["0x8"],"wait":{"kind":"fd","text":"","what":"","on":null,"on_complete":false,"timed":false},` +
				`"taken":"stop","frames":[{"func":"f","module":"","offset":""}],"end":"cut"}`},
	} {
		b, err := json.Marshal(&tt.thread)
		if err != nil || string(b) != tt.want {
			t.Errorf("%s, %v\nwant %s", b, err, tt.want)
		}
	}
}
