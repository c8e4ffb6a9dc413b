// SPDX-License-Identifier: MIT OR Apache-2.0
// Busy SECONDS: functions that call each other, for a runtime that makes code of them.
public class Busy {
  static int innerWork(int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum = (sum * 31 + i) % 1000003;
    return sum;
  }

  static long middleStep(int count) {
    long total = 0;
    for (int i = 0; i < 50; i++) total += innerWork(count + i);
    return total;
  }

  static long outerLoop(double seconds) {
    long end = System.nanoTime() + (long) (seconds * 1e9);
    long total = 0;
    while (System.nanoTime() < end) total += middleStep(2000);
    return total;
  }

  public static void main(String[] args) {
    System.out.println("total " + outerLoop(Double.parseDouble(args[0])));
  }
}
