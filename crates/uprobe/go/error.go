package uprobe

/*
#include <bpfcost_uprobe.h>
*/
import "C"

import (
	"runtime"
	"syscall"
)

// Error is a call that failed. errors.Is compares it by its number, with syscall.ENOENT or fs.ErrNotExist, for one.
type Error struct {
	// Errno is one of those that bpfcost_uprobe.h lists.
	Errno syscall.Errno
	// Text says what happened, and often what to do.
	Text string
}

func (err *Error) Error() string { return err.Text }

// Unwrap returns the number.
func (err *Error) Unwrap() error { return err.Errno }

// answer makes a call of the library. The text of an error is of the thread that made it.
func answer(work func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	code := work()
	if code == 0 {
		return nil
	}
	return &Error{Errno: syscall.Errno(-code), Text: C.GoString(C.bpfcost_uprobe_error())}
}
