package targets

import (
	"fmt"
	"os/user"
	"strconv"
)

// UserID is the id of the user that word names: by name, or by number.
func UserID(word string) (uint32, error) {
	if id, err := strconv.ParseUint(word, 10, 32); err == nil {
		return uint32(id), nil
	}
	u, err := user.Lookup(word)
	if err != nil {
		return 0, fmt.Errorf("there is no user %q (a name that getent passwd lists, or a number)", word)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("user %q has the id %q, which is no number (give a number)", word, u.Uid)
	}
	return uint32(id), nil
}
