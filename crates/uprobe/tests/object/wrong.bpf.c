// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that no verifier accepts. */

__attribute__((section("uprobe"), used)) int on_null(void *ctx)
{
	return *(volatile int *)8;
}

char _license[] __attribute__((section("license"), used)) = "GPL";
