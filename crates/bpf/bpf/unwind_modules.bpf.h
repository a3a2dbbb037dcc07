/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* unwind_modules: the programs that note that modules come and go, for objects that take stacks with unwind.bpf.h. */
#ifndef UNWIND_MODULES_BPF_H
#define UNWIND_MODULES_BPF_H

#include "unwind.bpf.h"

SEC("?raw_tp/module_load")
int on_module_load(void *ctx)
{
	unwind_module_changed();
	return 0;
}

SEC("?raw_tp/module_free")
int on_module_free(void *ctx)
{
	unwind_module_changed();
	return 0;
}

#endif
