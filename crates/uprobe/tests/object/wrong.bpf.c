/* A program that no verifier accepts. */

__attribute__((section("uprobe"), used)) int on_null(void *ctx)
{
	return *(volatile int *)8;
}

char _license[] __attribute__((section("license"), used)) = "GPL";
