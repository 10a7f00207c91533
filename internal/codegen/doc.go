// Package codegen makes typed Go callers of stored procedures.
//
// It reads routines into one model ([Routine]), from SQL sources with a declared header or from a live
// catalogue, compares the models of two engines, and writes Go and the reference from them.
package codegen
