// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * strange_elf FILE SECONDS: makes FILE, a terabyte long and sparse, an ELF file by its header, which says that it has two
 * thousand million program headers; maps a page of it as code and runs there.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CODE_AT 65536
#define LENGTH (1ull << 40)

/* Counts its argument down to zero. */
#if defined(__x86_64__)
static const unsigned char code[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 };
#elif defined(__aarch64__)
static const unsigned int code[] = { 0xf1000400, 0x54ffffe1, 0xd65f03c0 };
#endif

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	Elf64_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			      .e_type = ET_DYN,
			      .e_machine = EM_X86_64,
			      .e_version = EV_CURRENT,
			      .e_ehsize = sizeof(header),
			      .e_phoff = CODE_AT,
			      .e_phentsize = sizeof(Elf64_Phdr),
			      .e_phnum = PN_XNUM,
			      .e_shoff = 4096,
			      .e_shentsize = sizeof(Elf64_Shdr),
			      .e_shnum = 1 };
	Elf64_Shdr section = { .sh_info = 2000000000 };
	void (*run)(unsigned long);
	double end;
	int fd;

	if (argc != 3)
		return 2;
	fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0755);
	if (fd < 0 || ftruncate(fd, LENGTH) || pwrite(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    pwrite(fd, &section, sizeof(section), 4096) != sizeof(section) ||
	    pwrite(fd, code, sizeof(code), CODE_AT) != sizeof(code)) {
		perror(argv[1]);
		return 1;
	}
	run = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, CODE_AT);
	if (run == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (end = now() + atof(argv[2]); now() < end;)
		run(1000000);
	puts("ran 1");
	return 0;
}
