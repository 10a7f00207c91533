// Package demo plays a story on a real database, with real processes: a worker stalls, another one takes over,
// and the database refuses what comes too late.
//
// The workers are processes of their own, started by [Run] and served by [Serve]; commands and answers are JSON
// lines on their standard input and output. A worker stalls because it is stopped (SIGSTOP), not because it was
// told to wait; only where there are no such signals (Windows) is it told to stall.
//
// Nothing in the story waits for a fixed time: what is awaited is read from the database, or from the system's
// list of processes. What comes out is compared with what should, step by step.
//
// # What it leaves behind
//
// Nothing, when it starts its own database. On a database of the caller's it works on resources whose names
// begin with "demo/<random>/", and takes them away at the end, also when it was interrupted.
//
// Workers end when their standard input does, and so when this process ends in whatever way. One that is stopped
// cannot notice: on Linux the kernel kills it with its parent (PR_SET_PDEATHSIG), on other Unix systems it gets
// SIGHUP and SIGCONT as a stopped member of an orphaned process group. They are in process groups of their own,
// so that a Ctrl-C in the terminal reaches this process alone, which then ends them in good order.
package demo
