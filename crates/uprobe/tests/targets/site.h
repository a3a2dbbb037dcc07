/* What sys/sdt.h writes for a probe: a nop here, and a note with its address. For assembler in C. */
#define SITE_MACRO SITE_MACRO_OF("test")
#define SITE_MACRO_OF(provider)                                                                                        \
	".macro site name, semaphore, arguments\n"                                                                     \
	"990: nop\n"                                                                                                   \
	".pushsection .note.stapsdt, \"\", @note\n"                                                                    \
	".balign 4\n"                                                                                                  \
	".4byte 992f - 991f, 994f - 993f, 3\n"                                                                         \
	"991: .asciz \"stapsdt\"\n"                                                                                    \
	"992: .balign 4\n"                                                                                             \
	"993: .8byte 990b, _.stapsdt.base, \\semaphore\n"                                                              \
	".asciz \"" provider "\"\n"                                                                                    \
	".asciz \"\\name\"\n"                                                                                          \
	".asciz \"\\arguments\"\n"                                                                                     \
	"994: .balign 4\n"                                                                                             \
	".popsection\n"                                                                                                \
	".endm\n"                                                                                                      \
	".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"                                    \
	".weak _.stapsdt.base\n"                                                                                       \
	".hidden _.stapsdt.base\n"                                                                                     \
	"_.stapsdt.base: .space 1\n"                                                                                   \
	".size _.stapsdt.base, 1\n"                                                                                    \
	".popsection\n"
