// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * as_user CAPABILITIES COMMAND [ARG…]: become user 1000, keep only these capabilities (`none`, or as `bpf,perfmon`),
 * and execute COMMAND. What setpriv of util-linux does, in one static program.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	int number;
} capabilities[] = { { "sys_ptrace", 19 }, { "sys_admin", 21 }, { "syslog", 34 }, { "perfmon", 38 }, { "bpf", 39 } };

static unsigned long long parse(char *names)
{
	unsigned long long set = 0;

	for (char *name = strtok(names, ","); name; name = strtok(NULL, ","))
		for (unsigned i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++)
			if (!strcmp(name, capabilities[i].name))
				set |= 1ULL << capabilities[i].number;
	return set;
}

static void check(long result, const char *what)
{
	if (result == 0)
		return;
	perror(what);
	exit(126);
}

/* Permitted, effective, inheritable and ambient: so that they outlive the exec. */
static void keep(unsigned long long set)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = {};

	for (int half = 0; half < 2; half++)
		data[half].effective = data[half].permitted = data[half].inheritable = set >> 32 * half;
	check(syscall(SYS_capset, &header, data), "capset");
	for (int number = 0; number < 64; number++)
		if (set >> number & 1)
			check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0), "ambient");
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: as_user CAPABILITIES COMMAND [ARG...]\n");
		return 2;
	}
	check(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "keepcaps");
	check(setgroups(0, NULL), "setgroups");
	check(setresgid(1000, 1000, 1000), "setresgid");
	check(setresuid(1000, 1000, 1000), "setresuid");
	keep(parse(argv[1]));
	execv(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
