/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program at the entry of a function and one at its return, which do the same: `use()`. */
#ifndef BOTH_ENDS_H
#define BOTH_ENDS_H

SEC("uprobe")
int on_call(void *ctx)
{
	return use();
}

SEC("uretprobe")
int on_return(void *ctx)
{
	return use();
}

#endif
