// While this is loaded, memory registrations are scarce: ib_alloc_mr gives one in three hundred that are asked for.
// Without any, Linux's client asks in a loop, for ever.
#include <linux/err.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static noinline void *refuse(void)
{
	return ERR_PTR(-ENOMEM);
}

static int before(struct kprobe *probe, struct pt_regs *regs)
{
	static unsigned int asked;

	if (++asked % 300 == 0)
		return 0;
	regs->ip = (unsigned long)refuse;
	return 1;
}

// With it, the kernel keeps the place such that a handler may change where it goes on.
static void after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = {
	.symbol_name = "ib_alloc_mr",
	.pre_handler = before,
	.post_handler = after,
};

static int __init begin(void)
{
	return register_kprobe(&probe);
}

static void __exit end(void)
{
	unregister_kprobe(&probe);
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
